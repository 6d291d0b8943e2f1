// One storage account with its containers, without keys.
@minLength(3)
@maxLength(24)
param name string
param location string
param tags object
@allowed(['Standard_LRS', 'Standard_ZRS'])
param sku string
param containers string[]
param publicAccess bool
param workspaceId string

resource account 'Microsoft.Storage/storageAccounts@2025-06-01' = {
  name: name
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: {
    name: sku
  }
  properties: {
    allowSharedKeyAccess: false
    allowBlobPublicAccess: false
    allowCrossTenantReplication: false
    defaultToOAuthAuthentication: true
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    publicNetworkAccess: publicAccess ? 'Enabled' : 'Disabled'
    networkAcls: {
      bypass: 'AzureServices'
      defaultAction: publicAccess ? 'Allow' : 'Deny'
    }
  }
}

resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2025-06-01' = {
  parent: account
  name: 'default'
  properties: {
    deleteRetentionPolicy: {
      enabled: true
      days: 7
    }
    containerDeleteRetentionPolicy: {
      enabled: true
      days: 7
    }
  }
}

resource folders 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-06-01' = [
  for container in containers: {
    parent: blobs
    name: container
    properties: {
      publicAccess: 'None'
    }
  }
]

resource logs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  scope: blobs
  name: 'to-workspace'
  properties: {
    workspaceId: workspaceId
    logs: [
      {
        category: 'StorageDelete'
        enabled: true
      }
    ]
    metrics: [
      {
        category: 'Transaction'
        enabled: true
      }
    ]
  }
}

output id string = account.id
output name string = account.name
output blobUri string = account.properties.primaryEndpoints.blob
output queueUri string = account.properties.primaryEndpoints.queue
output tableUri string = account.properties.primaryEndpoints.table
