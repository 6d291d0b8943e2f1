// Logs, traces and metrics. Written under an identity only.
@minLength(4)
@maxLength(63)
param workspaceName string
@minLength(1)
@maxLength(255)
param insightsName string
param location string
param tags object
param retentionDays int

resource workspace 'Microsoft.OperationalInsights/workspaces@2025-07-01' = {
  name: workspaceName
  location: location
  tags: tags
  properties: {
    sku: {
      name: 'PerGB2018'
    }
    retentionInDays: retentionDays
    features: {
      disableLocalAuth: true
    }
  }
}

resource insights 'Microsoft.Insights/components@2020-02-02' = {
  name: insightsName
  location: location
  tags: tags
  kind: 'web'
  properties: {
    Application_Type: 'web'
    WorkspaceResourceId: workspace.id
    DisableLocalAuth: true
  }
}

output workspaceId string = workspace.id
output workspaceKey string = workspace.properties.customerId
output insightsName string = insights.name
output insightsConnection string = insights.properties.ConnectionString
