// The function app on Flex Consumption. Every connection is by identity.
@minLength(2)
@maxLength(60)
param name string
@minLength(1)
@maxLength(60)
param planName string
param location string
param tags object
param identityId string
param clientId string
@description('Subnet delegated to Microsoft.App/environments. Empty: no network.')
param subnetId string
param publicAccess bool
param zoneRedundant bool
param instanceMemoryMB int
param maximumInstanceCount int
param httpConcurrency int
param alwaysReadyHttp int
param alwaysReadyOrchestration int
@allowed(['Recreate', 'RollingUpdate'])
param siteUpdateStrategy string
param hostBlobUri string
param hostQueueUri string
param hostTableUri string
@description('Endpoint of the Durable Task Scheduler. Empty: the task hub is in the host storage.')
param schedulerEndpoint string
param deploymentContainer string
param payloadsBlobUri string
param payloadsContainer string
param cosmosEndpoint string
param databaseName string
param busHost string
param vaultUri string
param insightsConnection string
param authIssuers string
param publishTargets string
param egressAllow string
param extraSettings object
param workspaceId string

// The names that the Functions extensions and orchestrator/settings_azure.py read; a test gives them
// to the settings code itself.
// Durable Functions keeps its task hub where host.json says, Azure Storage by default. Settings of
// this form replace what is in host.json; %NAME% is not understood in all of its places.
var hubSettings = empty(schedulerEndpoint)
  ? {
      AzureWebJobsStorage__queueServiceUri: hostQueueUri
      AzureWebJobsStorage__tableServiceUri: hostTableUri
    }
  : {
      AzureFunctionsJobHost__extensions__durableTask__storageProvider__type: 'azureManaged'
      AzureFunctionsJobHost__extensions__durableTask__storageProvider__connectionStringName: 'DURABLE_TASK_SCHEDULER_CONNECTION_STRING'
      DURABLE_TASK_SCHEDULER_CONNECTION_STRING: 'Endpoint=${schedulerEndpoint};Authentication=ManagedIdentity;ClientID=${clientId}'
    }

var settings = union(
  {
    AzureWebJobsStorage__blobServiceUri: hostBlobUri
    AzureWebJobsStorage__credential: 'managedidentity'
    AzureWebJobsStorage__clientId: clientId
    APPLICATIONINSIGHTS_CONNECTION_STRING: insightsConnection
    APPLICATIONINSIGHTS_AUTHENTICATION_STRING: 'ClientId=${clientId};Authorization=AAD'
    AZURE_CLIENT_ID: clientId
    WEFT_BACKEND: 'azure'
    Cosmos__accountEndpoint: cosmosEndpoint
    Cosmos__credential: 'managedidentity'
    Cosmos__clientId: clientId
    COSMOS_DATABASE: databaseName
    ServiceBus__fullyQualifiedNamespace: busHost
    ServiceBus__credential: 'managedidentity'
    ServiceBus__clientId: clientId
    Payloads__blobServiceUri: payloadsBlobUri
    PAYLOADS_CONTAINER: payloadsContainer
    KeyVault__vaultUri: vaultUri
    WEFT_AUTH_ISSUERS: authIssuers
  },
  hubSettings,
  empty(publishTargets) ? {} : { WEFT_PUBLISH_TARGETS: publishTargets },
  empty(egressAllow) ? {} : { WEFT_EGRESS_ALLOW: egressAllow },
  extraSettings
)

var alwaysReady = concat(
  alwaysReadyHttp > 0 ? [{ name: 'http', instanceCount: alwaysReadyHttp }] : [],
  alwaysReadyOrchestration > 0 ? [{ name: 'function:orchestration', instanceCount: alwaysReadyOrchestration }] : []
)

resource plan 'Microsoft.Web/serverfarms@2025-05-01' = {
  name: planName
  location: location
  tags: tags
  kind: 'functionapp'
  sku: {
    name: 'FC1'
    tier: 'FlexConsumption'
  }
  properties: {
    reserved: true
    zoneRedundant: zoneRedundant
  }
}

resource site 'Microsoft.Web/sites@2025-05-01' = {
  name: name
  location: location
  tags: tags
  kind: 'functionapp,linux'
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identityId}': {}
    }
  }
  properties: {
    serverFarmId: plan.id
    httpsOnly: true
    publicNetworkAccess: publicAccess ? 'Enabled' : 'Disabled'
    virtualNetworkSubnetId: empty(subnetId) ? null : subnetId
    keyVaultReferenceIdentity: identityId
    functionAppConfig: {
      deployment: {
        storage: {
          type: 'blobContainer'
          value: '${hostBlobUri}${deploymentContainer}'
          authentication: {
            type: 'UserAssignedIdentity'
            userAssignedIdentityResourceId: identityId
          }
        }
      }
      runtime: {
        name: 'python'
        version: '3.13'
      }
      scaleAndConcurrency: {
        instanceMemoryMB: instanceMemoryMB
        maximumInstanceCount: maximumInstanceCount
        alwaysReady: alwaysReady
        triggers: {
          http: {
            perInstanceConcurrency: httpConcurrency
          }
        }
      }
      siteUpdateStrategy: {
        type: siteUpdateStrategy
      }
    }
    siteConfig: {
      minTlsVersion: '1.2'
      http20Enabled: true
      appSettings: [for setting in items(settings): { name: setting.key, value: setting.value }]
    }
  }
}

// Deployments authenticate with Entra ID; user names and passwords of the site stay off.
resource ftpPasswords 'Microsoft.Web/sites/basicPublishingCredentialsPolicies@2025-05-01' = {
  parent: site
  name: 'ftp'
  properties: {
    allow: false
  }
}

resource scmPasswords 'Microsoft.Web/sites/basicPublishingCredentialsPolicies@2025-05-01' = {
  parent: site
  name: 'scm'
  properties: {
    allow: false
  }
}

resource logs 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  scope: site
  name: 'to-workspace'
  properties: {
    workspaceId: workspaceId
    logs: [
      {
        category: 'FunctionAppLogs'
        enabled: true
      }
    ]
    metrics: [
      {
        category: 'AllMetrics'
        enabled: true
      }
    ]
  }
}

output id string = site.id
output name string = site.name
output uri string = 'https://${site.properties.defaultHostName}'
