// The operator's page: what runs, what waits, what failed.
param location string
param tags object
param workspaceId string

resource workbook 'Microsoft.Insights/workbooks@2023-06-01' = {
  name: guid(resourceGroup().id, 'weft-operations')
  location: location
  tags: tags
  kind: 'shared'
  properties: {
    displayName: 'Weft operations'
    category: 'workbook'
    sourceId: workspaceId
    serializedData: string(loadJsonContent('workbook.json'))
  }
}
